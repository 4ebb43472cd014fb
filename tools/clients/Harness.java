import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.TreeMap;
import java.util.Map;
import java.util.stream.IntStream;

/** Runs the jobs of `npm run clients` with a client, and prints a line of JSON for each. */
final class Harness {
  record Job(
      String name, String url, String key, String model, boolean stream, int times,
      @JsonProperty("leave_after") int leaveAfter) {}

  /** What the client gave to its user. */
  static final class Answer extends TreeMap<String, Object> {
    private int pieces = 0;

    /** Adds text. Returns whether the client leaves. */
    boolean add(String piece, Job job) {
      merge("text", piece, (before, added) -> before.toString() + added);
      if (!piece.isEmpty()) pieces += 1;
      return !piece.isEmpty() && pieces == job.leaveAfter();
    }

    void count(long promptTokens, long completionTokens) {
      put("prompt_tokens", promptTokens);
      put("completion_tokens", completionTokens);
    }
  }

  interface Client {
    void chat(Job job, String prompt, Answer answer) throws Exception;

    /** Ids of the models. */
    List<String> models(Job job);

    /** What an error says besides its text. */
    default String codeOf(Exception error) {
      return "";
    }
  }

  static void run(Client client) throws Exception {
    var json = new ObjectMapper();
    var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (var job : json.readValue(System.in, Job[].class)) {
      var answers = IntStream.range(0, job.times()).mapToObj(n -> new Answer()).toList();
      var threads = IntStream.range(0, job.times()).mapToObj(n -> new Thread(() -> {
        try {
          if (job.name().equals("models")) answers.get(n).put("models", client.models(job));
          else client.chat(job, job.name() + " " + n, answers.get(n));
        } catch (Exception error) {
          answers.get(n).put("error", error + " " + client.codeOf(error));
        }
      })).toList();
      for (var thread : threads) thread.start();
      for (var thread : threads) thread.join();
      out.println(json.writeValueAsString(Map.of("name", job.name(), "answers", answers)));
    }
    System.exit(0);
  }
}
