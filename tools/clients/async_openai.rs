//! Runs the jobs of `npm run clients` with async-openai, and prints a line of JSON for each.
use async_openai::types::chat::{
    ChatCompletionRequestUserMessage, ChatCompletionStreamOptions, CompletionUsage, CreateChatCompletionRequestArgs,
};
use async_openai::{Client, config::OpenAIConfig, error::OpenAIError};
use futures::{StreamExt, future::join_all};
use serde_json::{Value, json};

fn word(job: &Value, name: &str) -> String {
    job[name].as_str().unwrap_or_default().to_owned()
}

fn count(answer: &mut Value, usage: Option<CompletionUsage>) {
    if let Some(usage) = usage {
        answer["prompt_tokens"] = usage.prompt_tokens.into();
        answer["completion_tokens"] = usage.completion_tokens.into();
    }
}

async fn ask(job: &Value, prompt: &str, answer: &mut Value) -> Result<(), OpenAIError> {
    let config = OpenAIConfig::new().with_api_base(word(job, "url")).with_api_key(word(job, "key"));
    let client = Client::with_config(config);
    if job["name"] == "models" {
        let list = client.models().list().await?;
        answer["models"] = list.data.into_iter().map(|model| model.id).collect();
        return Ok(());
    }
    let message = ChatCompletionRequestUserMessage::from(prompt);
    let mut request = CreateChatCompletionRequestArgs::default();
    request.model(word(job, "model")).messages(vec![message.into()]);
    if job["stream"] == false {
        let whole = client.chat().create(request.build()?).await?;
        answer["text"] = whole.choices[0].message.content.clone().into();
        count(answer, whole.usage);
        return Ok(());
    }
    request.stream_options(ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None });
    let mut stream = client.chat().create_stream(request.build()?).await?;
    let (mut text, mut pieces) = (String::new(), 0);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        count(answer, chunk.usage);
        for piece in chunk.choices.into_iter().filter_map(|choice| choice.delta.content) {
            text += &piece;
            pieces += u64::from(!piece.is_empty());
        }
        answer["text"] = text.as_str().into();
        if pieces > 0 && job["leave_after"] == pieces {
            return Ok(());
        }
    }
    Ok(())
}

async fn answer_of(job: &Value, number: u64) -> Value {
    let mut answer = json!({});
    let prompt = format!("{} {number}", word(job, "name"));
    if let Err(error) = ask(job, &prompt, &mut answer).await {
        answer["error"] = error.to_string().into();
    }
    answer
}

#[tokio::main]
async fn main() {
    let jobs: Vec<Value> = serde_json::from_reader(std::io::stdin()).expect("jobs are JSON");
    for job in &jobs {
        let times = job["times"].as_u64().unwrap_or(1);
        let answers = join_all((0..times).map(|number| answer_of(job, number))).await;
        println!("{}", json!({ "name": job["name"], "answers": answers }));
    }
}
