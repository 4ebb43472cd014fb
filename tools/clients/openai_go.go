// Runs the jobs of `npm run clients` with openai-go, and prints a line of JSON for each.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"MODULE"
	"MODULE/option"
)

type job struct {
	Name, URL, Key, Model string
	Stream                bool
	Times                 int
	LeaveAfter            int `json:"leave_after"`
}

type answer struct {
	Text             string   `json:"text"`
	PromptTokens     int64    `json:"prompt_tokens,omitempty"`
	CompletionTokens int64    `json:"completion_tokens,omitempty"`
	Models           []string `json:"models,omitempty"`
	Error            string   `json:"error,omitempty"`
}

func (a *answer) count(usage openai.CompletionUsage) {
	if usage.TotalTokens > 0 {
		a.PromptTokens, a.CompletionTokens = usage.PromptTokens, usage.CompletionTokens
	}
}

func (a *answer) fail(err error) {
	var refused *openai.Error
	if errors.As(err, &refused) {
		a.Error = fmt.Sprintf("%T %d %s %s", refused, refused.StatusCode, refused.Code, refused.Message)
	} else if err != nil {
		a.Error = err.Error()
	}
}

func chat(client openai.Client, j job, prompt string) (a answer) {
	request := openai.ChatCompletionNewParams{
		Model:    j.Model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
	if !j.Stream {
		whole, err := client.Chat.Completions.New(context.Background(), request)
		if err != nil {
			a.fail(err)
			return
		}
		a.Text = whole.Choices[0].Message.Content
		a.count(whole.Usage)
		return
	}
	request.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Chat.Completions.NewStreaming(context.Background(), request)
	defer stream.Close()
	for pieces := 0; stream.Next(); {
		a.count(stream.Current().Usage)
		for _, choice := range stream.Current().Choices {
			if choice.Delta.Content == "" {
				continue
			}
			a.Text += choice.Delta.Content
			pieces++
			if pieces == j.LeaveAfter {
				return
			}
		}
	}
	a.fail(stream.Err())
	return
}

func main() {
	var jobs []job
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil {
		panic(err)
	}
	for _, j := range jobs {
		client := openai.NewClient(option.WithBaseURL(j.URL), option.WithAPIKey(j.Key))
		answers := make([]answer, j.Times)
		if j.Name == "models" {
			list, err := client.Models.List(context.Background())
			answers[0].fail(err)
			if err == nil {
				for _, model := range list.Data {
					answers[0].Models = append(answers[0].Models, model.ID)
				}
			}
		} else {
			var all sync.WaitGroup
			for n := range answers {
				all.Add(1)
				go func() {
					defer all.Done()
					answers[n] = chat(client, j, fmt.Sprintf("%s %d", j.Name, n))
				}()
			}
			all.Wait()
		}
		line, _ := json.Marshal(map[string]any{"name": j.Name, "answers": answers})
		fmt.Println(string(line))
	}
}
