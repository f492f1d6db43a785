// OpenAI's client for JavaScript: what it gets from a server, as JSON. node openai.mjs URL MODEL
import OpenAI, { BadRequestError } from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "return width" }];
const chat = { model, messages, temperature: 0, max_tokens: 6 };
const completion = { model, prompt: "def area(", temperature: 0, max_tokens: 6 };
const response = { model, input: "return width", temperature: 0, max_output_tokens: 6 };

async function joined(stream, piece) {
  let text = "";
  for await (const event of stream) text += piece(event) ?? "";
  return text;
}

const found = {
  models: (await client.models.list()).data.map((each) => each.id),
  chat: (await client.chat.completions.create(chat)).choices[0].message.content,
  chat_stream: await joined(
    await client.chat.completions.create({ ...chat, stream: true }),
    (event) => event.choices[0].delta.content,
  ),
  // The client's own way to put a stream together again, which checks its events.
  chat_helper: await client.chat.completions.stream(chat).finalContent(),
  completion: (await client.completions.create(completion)).choices[0].text,
  completion_stream: await joined(
    await client.completions.create({ ...completion, stream: true }),
    (event) => event.choices[0].text,
  ),
  response: (await client.responses.create(response)).output_text,
  response_helper: (await client.responses.stream(response).finalResponse()).output_text,
};
try {
  await client.chat.completions.create({ ...chat, tools: [{ type: "function" }] });
} catch (error) {
  if (!(error instanceof BadRequestError)) throw error;
  found.refused = error.param;
}
console.log(JSON.stringify(found));
