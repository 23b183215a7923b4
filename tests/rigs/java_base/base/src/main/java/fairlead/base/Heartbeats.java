package fairlead.base;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Announces the base over HTTP as arklet 2.1.11 does; the arklet that Maven resolves does not do it yet. */
final class Heartbeats {
    private static final long PERIOD_S = 12;

    private final HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
    private final URI target;

    Heartbeats(String url) {
        target = URI.create(url + "/heartbeat");
    }

    void start() {
        ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "heartbeats");
            thread.setDaemon(true);
            return thread;
        });
        timer.scheduleAtFixedRate(() -> post("activated"), 0, PERIOD_S, TimeUnit.SECONDS);
        // A real base ends without a word.
        if (Boolean.getBoolean("fairlead.goodbye")) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> post("deactivated")));
        }
    }

    private void post(String state) {
        HttpRequest request = HttpRequest.newBuilder(target)
                .timeout(Duration.ofSeconds(10))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body(state)))
                .build();
        try {
            client.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        } catch (Exception problem) {
            System.out.println("heartbeat not sent: " + problem);
        }
    }

    private static String body(String state) {
        String ip = System.getProperty("fairlead.ip", "127.0.0.1");
        String identity = System.getProperty("fairlead.identity", ip);
        return "{\"baseMetadata\":{\"clusterName\":\"default\",\"identity\":\"" + identity
                + "\",\"name\":\"TO_BE_IMPLEMENTED\",\"version\":\"1.0.0\"},\"localHostName\":\"" + ip
                + "\",\"localIP\":\"" + ip + "\",\"port\":" + System.getProperty("koupleless.arklet.http.port")
                + ",\"state\":\"" + state + "\"}";
    }
}
