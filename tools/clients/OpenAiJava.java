import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.errors.OpenAIServiceException;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.completions.CompletionUsage;
import java.util.List;

final class OpenAiJava implements Harness.Client {
  private static OpenAIClient clientOf(Harness.Job job) {
    return OpenAIOkHttpClient.builder().baseUrl(job.url()).apiKey(job.key()).build();
  }

  @Override
  public void chat(Harness.Job job, String prompt, Harness.Answer answer) {
    var completions = clientOf(job).chat().completions();
    var request = ChatCompletionCreateParams.builder().model(job.model()).addUserMessage(prompt);
    if (!job.stream()) {
      var whole = completions.create(request.build());
      answer.add(whole.choices().get(0).message().content().orElse(""), job);
      whole.usage().ifPresent(usage -> count(usage, answer));
      return;
    }
    request.streamOptions(ChatCompletionStreamOptions.builder().includeUsage(true).build());
    try (var stream = completions.createStreaming(request.build())) {
      for (var chunks = stream.stream().iterator(); chunks.hasNext(); ) {
        var chunk = chunks.next();
        chunk.usage().ifPresent(usage -> count(usage, answer));
        for (var choice : chunk.choices())
          if (answer.add(choice.delta().content().orElse(""), job)) return;
      }
    }
  }

  private static void count(CompletionUsage usage, Harness.Answer answer) {
    answer.count(usage.promptTokens(), usage.completionTokens());
  }

  @Override
  public List<String> models(Harness.Job job) {
    return clientOf(job).models().list().items().stream().map(model -> model.id()).toList();
  }

  @Override
  public String codeOf(Exception error) {
    return error instanceof OpenAIServiceException refused ? refused.code().orElse("") : "";
  }

  public static void main(String[] arguments) throws Exception {
    Harness.run(new OpenAiJava());
  }
}
