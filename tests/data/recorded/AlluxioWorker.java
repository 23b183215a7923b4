// Prints what an Alluxio worker serves under /metrics/prometheus/, by its own classes and without a master:
//   mvn dependency:copy-dependencies of org.alluxio:alluxio-minicluster:2.9.4 into lib/, then
//   java -cp 'lib/*' AlluxioWorker.java [empty] > alluxio-2.9.4.txt
import alluxio.conf.Configuration;
import alluxio.conf.PropertyKey.Template;
import alluxio.conf.PropertyKey;
import alluxio.metrics.MetricsSystem;
import alluxio.metrics.sink.PrometheusMetricsServlet;
import alluxio.util.CommonUtils;
import alluxio.worker.block.BlockMetadataManager;
import alluxio.worker.block.BlockWorker;
import alluxio.worker.block.DefaultBlockWorker;
import alluxio.worker.block.meta.DefaultTempBlockMeta;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

public class AlluxioWorker {
  public static void main(String[] arguments) throws Exception {
    CommonUtils.PROCESS_TYPE.set(CommonUtils.ProcessType.WORKER);
    Configuration.set(PropertyKey.WORKER_HOSTNAME, "10.0.0.7");
    Configuration.set(PropertyKey.WORKER_TIERED_STORE_LEVELS, 2);
    tier(0, "MEM", "4GB");
    tier(1, "HDD", "8GB");
    BlockMetadataManager blocks = BlockMetadataManager.createBlockMetadataManager();
    if (arguments.length == 0) {
      add(blocks, 1, "MEM", 3 << 20);
      add(blocks, 2, "MEM", 1 << 20);
      add(blocks, 3, "HDD", 7 << 20);
    }
    DefaultBlockWorker.Metrics.registerGauges((BlockWorker) Proxy.newProxyInstance(
        AlluxioWorker.class.getClassLoader(), new Class<?>[] {BlockWorker.class},
        (self, method, values) -> method.getName().equals("getStoreMetaFull")
            ? blocks.getBlockStoreMetaFull() : blocks.getBlockStoreMeta()));
    Server server = new Server(0);
    server.setHandler(new PrometheusMetricsServlet(MetricsSystem.METRIC_REGISTRY).getHandler());
    server.start();
    int port = ((ServerConnector) server.getConnectors()[0]).getLocalPort();
    new URL("http://127.0.0.1:" + port + "/metrics/prometheus/").openStream().transferTo(System.out);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  static void tier(int level, String medium, String quota) throws Exception {
    Path folder = Files.createTempDirectory(medium);
    Configuration.set(Template.WORKER_TIERED_STORE_LEVEL_ALIAS.format(level), medium);
    Configuration.set(Template.WORKER_TIERED_STORE_LEVEL_DIRS_PATH.format(level), List.of(folder.toString()));
    Configuration.set(Template.WORKER_TIERED_STORE_LEVEL_DIRS_QUOTA.format(level), List.of(quota));
    Configuration.set(Template.WORKER_TIERED_STORE_LEVEL_DIRS_MEDIUMTYPE.format(level), List.of(medium));
  }

  static void add(BlockMetadataManager blocks, long number, String tier, int size) throws Exception {
    DefaultTempBlockMeta block = new DefaultTempBlockMeta(1, number, size, blocks.getTier(tier).getDir(0));
    blocks.addTempBlockMeta(block);
    Path file = Path.of(block.getPath());
    Files.createDirectories(file.getParent());
    Files.write(file, new byte[size]);
    Files.move(file, Path.of(block.getCommitPath()));
    blocks.commitTempBlockMeta(block);
  }
}
