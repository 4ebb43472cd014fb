#!/bin/sh
# Streams an answer with curl, then shows the balance.
#
#   INKWELL_KEY=ink_... sh examples/chat.sh
set -eu
url=${INKWELL_URL:-http://127.0.0.1:8080}
model=${INKWELL_MODEL:-smollm2-135m-instruct}

# An error has a status of 400 or more, and a body with its code.
curl -sS -N --fail-with-body "$url/v1/chat/completions" \
  -H "Authorization: Bearer $INKWELL_KEY" -H "Content-Type: application/json" \
  -d "{\"model\":\"$model\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"What is an inkwell?\"}]}"

curl -sS --fail-with-body "$url/v1/balance" -H "Authorization: Bearer $INKWELL_KEY"
echo
