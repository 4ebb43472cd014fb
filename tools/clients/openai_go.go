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

type answer map[string]any

func (a answer) count(usage openai.CompletionUsage) {
	if usage.TotalTokens > 0 {
		a["prompt_tokens"], a["completion_tokens"] = usage.PromptTokens, usage.CompletionTokens
	}
}

func (a answer) ask(j job, prompt string) error {
	client, never := openai.NewClient(option.WithBaseURL(j.URL), option.WithAPIKey(j.Key)), context.Background()
	if j.Name == "models" {
		list, err := client.Models.List(never)
		if err != nil {
			return err
		}
		ids := []string{}
		for _, model := range list.Data {
			ids = append(ids, model.ID)
		}
		a["models"] = ids
		return nil
	}
	request := openai.ChatCompletionNewParams{
		Model:    j.Model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
	if !j.Stream {
		whole, err := client.Chat.Completions.New(never, request)
		if err == nil {
			a["text"] = whole.Choices[0].Message.Content
			a.count(whole.Usage)
		}
		return err
	}
	request.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client.Chat.Completions.NewStreaming(never, request)
	defer stream.Close()
	text := ""
	for pieces := 0; stream.Next(); {
		a.count(stream.Current().Usage)
		for _, choice := range stream.Current().Choices {
			text += choice.Delta.Content
			if choice.Delta.Content != "" {
				pieces++
			}
		}
		if pieces > 0 && pieces == j.LeaveAfter {
			break
		}
	}
	a["text"] = text
	return stream.Err()
}

func main() {
	var jobs []job
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil {
		panic(err)
	}
	for _, j := range jobs {
		var all sync.WaitGroup
		answers := make([]answer, j.Times)
		for n := range answers {
			all.Add(1)
			go func() {
				defer all.Done()
				answers[n] = answer{}
				err := answers[n].ask(j, fmt.Sprintf("%s %d", j.Name, n))
				var refused *openai.Error
				if errors.As(err, &refused) {
					err = fmt.Errorf("%d %s %s", refused.StatusCode, refused.Code, refused.Message)
				}
				if err != nil {
					answers[n]["error"] = err.Error()
				}
			}()
		}
		all.Wait()
		line, _ := json.Marshal(map[string]any{"name": j.Name, "answers": answers})
		fmt.Println(string(line))
	}
}
