package fairlead.base;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** A base and nothing else: arklet comes with its dependencies, heartbeats are our own. */
@SpringBootApplication
public class Base {
    public static void main(String[] args) {
        SpringApplication.run(Base.class, args);
        String url = System.getProperty("fairlead.heartbeat", "");
        if (!url.isEmpty()) {
            new Heartbeats(url).start();
        }
        System.out.println("base: ready");
    }
}
