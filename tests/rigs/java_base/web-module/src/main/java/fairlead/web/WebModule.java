package fairlead.web;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

@SpringBootApplication
@RestController
public class WebModule {
    public static void main(String[] args) {
        SpringApplication.run(WebModule.class, args);
    }

    @GetMapping("/hello")
    public String hello() {
        return "hello from module web";
    }
}
