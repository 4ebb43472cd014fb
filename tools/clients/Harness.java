import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Runs the jobs of `npm run clients` with a client, and prints a line of JSON for each. */
final class Harness {
  record Job(
      String name, String url, String key, String model, boolean stream, int times,
      @JsonProperty("leave_after") int leaveAfter) {}

  /** What the client gave to its user. */
  static final class Answer {
    private final Map<String, Object> fields = new LinkedHashMap<>();
    private final StringBuffer text = new StringBuffer();
    private int pieces = 0;

    /** Returns whether the client leaves. */
    boolean add(String piece, Job job) {
      text.append(piece);
      if (!piece.isEmpty()) pieces += 1;
      return !piece.isEmpty() && pieces == job.leaveAfter();
    }

    void count(long promptTokens, long completionTokens) {
      fields.put("prompt_tokens", promptTokens);
      fields.put("completion_tokens", completionTokens);
    }

    Map<String, Object> fields() {
      fields.put("text", text.toString());
      return fields;
    }
  }

  interface Client {
    void chat(Job job, String prompt, Answer answer) throws Exception;

    /** Ids of the models. */
    List<String> models(Job job) throws Exception;

    /** What an error says besides its text. */
    default String codeOf(Exception error) {
      return "";
    }
  }

  private static Map<String, Object> fieldsOf(Client client, Job job, int n) {
    var answer = new Answer();
    try {
      if (job.name().equals("models")) answer.fields.put("models", client.models(job));
      else client.chat(job, job.name() + " " + n, answer);
    } catch (Exception error) {
      answer.fields.put("error", error + " " + client.codeOf(error));
    }
    return answer.fields();
  }

  static void run(Client client) throws Exception {
    var json = new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    var threads = Executors.newFixedThreadPool(10);
    for (var job : json.readValue(System.in, Job[].class)) {
      var futures = new ArrayList<Future<Map<String, Object>>>();
      for (int n = 0; n < job.times(); n += 1) {
        int number = n;
        futures.add(threads.submit(() -> fieldsOf(client, job, number)));
      }
      var answers = new ArrayList<Map<String, Object>>();
      for (var future : futures) answers.add(future.get());
      var line = new LinkedHashMap<String, Object>();
      line.put("name", job.name());
      line.put("answers", answers);
      out.println(json.writeValueAsString(line));
    }
    System.exit(0);
  }
}
