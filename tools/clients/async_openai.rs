//! Runs the jobs of `npm run clients` with async-openai, and prints a line of JSON for each.
use async_openai::{
    Client,
    config::OpenAIConfig,
    error::OpenAIError,
    types::chat::{
        ChatCompletionRequestUserMessage, ChatCompletionStreamOptions, CreateChatCompletionRequest,
        CreateChatCompletionRequestArgs,
    },
};
use futures::{StreamExt, future::join_all};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Job {
    name: String,
    url: String,
    key: String,
    model: String,
    stream: bool,
    times: usize,
    leave_after: usize,
}

#[derive(Default, Serialize)]
struct Answer {
    text: String,
    prompt_tokens: u32,
    completion_tokens: u32,
    models: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    answers: Vec<Answer>,
}

fn client_of(job: &Job) -> Client<OpenAIConfig> {
    let config = OpenAIConfig::new().with_api_base(&job.url).with_api_key(&job.key);
    Client::with_config(config)
}

fn request_of(job: &Job, prompt: &str) -> Result<CreateChatCompletionRequest, OpenAIError> {
    let message = ChatCompletionRequestUserMessage::from(prompt);
    let mut request = CreateChatCompletionRequestArgs::default();
    request.model(&job.model).messages(vec![message.into()]);
    if job.stream {
        request.stream_options(ChatCompletionStreamOptions {
            include_usage: Some(true),
            include_obfuscation: None,
        });
    }
    request.build()
}

async fn chat(job: &Job, prompt: &str, answer: &mut Answer) -> Result<(), OpenAIError> {
    let client = client_of(job);
    let request = request_of(job, prompt)?;
    if !job.stream {
        let whole = client.chat().create(request).await?;
        answer.text = whole.choices[0].message.content.clone().unwrap_or_default();
        if let Some(usage) = whole.usage {
            (answer.prompt_tokens, answer.completion_tokens) = (usage.prompt_tokens, usage.completion_tokens);
        }
        return Ok(());
    }
    let mut stream = client.chat().create_stream(request).await?;
    let mut pieces = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        if let Some(usage) = chunk.usage {
            (answer.prompt_tokens, answer.completion_tokens) = (usage.prompt_tokens, usage.completion_tokens);
        }
        for piece in chunk.choices.iter().filter_map(|choice| choice.delta.content.as_deref()) {
            answer.text += piece;
            pieces += usize::from(!piece.is_empty());
            if !piece.is_empty() && pieces == job.leave_after {
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn answer_of(job: &Job, number: usize) -> Answer {
    let mut answer = Answer::default();
    let result = if job.name == "models" {
        client_of(job).models().list().await.map(|list| {
            answer.models = list.data.into_iter().map(|model| model.id).collect();
        })
    } else {
        chat(job, &format!("{} {number}", job.name), &mut answer).await
    };
    answer.error = result.err().map(|error| error.to_string());
    answer
}

#[tokio::main]
async fn main() {
    let jobs: Vec<Job> = serde_json::from_reader(std::io::stdin()).expect("jobs are JSON");
    for job in &jobs {
        let answers = join_all((0..job.times).map(|number| answer_of(job, number))).await;
        let line = Line { name: &job.name, answers };
        println!("{}", serde_json::to_string(&line).expect("a line is JSON"));
    }
}
