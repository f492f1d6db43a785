// The AI SDK's provider for such servers: what it gets, as JSON. node ai_sdk.mjs URL MODEL
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, streamText } from "ai";

const [baseURL, model] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "local", baseURL, includeUsage: true });
const options = { temperature: 0, maxOutputTokens: 6, maxRetries: 0 };
const chat = { ...options, model: provider(model), prompt: "return width" };
const completion = { ...options, model: provider.completionModel(model), prompt: "def area(" };

const told = ({ text, usage, finishReason }) => ({
  text,
  tokens: usage.outputTokens,
  reason: finishReason,
});

async function streamed(asked) {
  const result = streamText(asked);
  let text = "";
  for await (const piece of result.textStream) text += piece;
  return told({ text, usage: await result.usage, finishReason: await result.finishReason });
}

const found = {
  chat: told(await generateText(chat)),
  chat_stream: await streamed(chat),
  completion: told(await generateText(completion)),
  completion_stream: await streamed(completion),
};
try {
  await generateText({ ...chat, model: provider("another") });
} catch (error) {
  if (!APICallError.isInstance(error)) throw error;
  found.refused = error.statusCode;
}
console.log(JSON.stringify(found));
