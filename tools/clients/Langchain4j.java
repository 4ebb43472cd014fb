import dev.langchain4j.model.catalog.ModelDescription;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.PartialResponse;
import dev.langchain4j.model.chat.response.PartialResponseContext;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.model.openai.OpenAiModelCatalog;
import dev.langchain4j.model.openai.OpenAiStreamingChatModel;
import dev.langchain4j.data.message.UserMessage;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

final class Langchain4j implements Harness.Client {
  @Override
  public void chat(Harness.Job job, String prompt, Harness.Answer answer) throws Exception {
    if (!job.stream()) {
      var model = OpenAiChatModel.builder().baseUrl(job.url()).apiKey(job.key()).modelName(job.model()).build();
      var whole = model.chat(UserMessage.from(prompt));
      answer.add(whole.aiMessage().text(), job);
      count(whole, answer);
      return;
    }
    var ended = new CompletableFuture<Void>();
    var handler = new StreamingChatResponseHandler() {
      @Override
      public void onPartialResponse(PartialResponse piece, PartialResponseContext context) {
        if (!answer.add(piece.text(), job)) return;
        context.streamingHandle().cancel();
        ended.complete(null);
      }

      @Override
      public void onCompleteResponse(ChatResponse whole) {
        count(whole, answer);
        ended.complete(null);
      }

      @Override
      public void onError(Throwable error) {
        ended.completeExceptionally(error);
      }
    };
    OpenAiStreamingChatModel.builder()
        .baseUrl(job.url())
        .apiKey(job.key())
        .modelName(job.model())
        .build()
        .chat(prompt, handler);
    try {
      ended.get();
    } catch (ExecutionException error) {
      if (error.getCause() instanceof Exception cause) throw cause;
      throw error;
    }
  }

  private static void count(ChatResponse whole, Harness.Answer answer) {
    var usage = whole.tokenUsage();
    if (usage != null) answer.count(usage.inputTokenCount(), usage.outputTokenCount());
  }

  @Override
  public List<String> models(Harness.Job job) {
    var catalog = OpenAiModelCatalog.builder().baseUrl(job.url()).apiKey(job.key()).build();
    return catalog.listModels().stream().map(ModelDescription::name).toList();
  }

  public static void main(String[] arguments) throws Exception {
    Harness.run(new Langchain4j());
  }
}
