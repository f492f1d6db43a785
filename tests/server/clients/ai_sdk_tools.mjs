// Steps of the AI SDK in which a tool must be called, as JSON. node ai_sdk_tools.mjs URL MODEL
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "local", baseURL, includeUsage: true });
const calls = [];
const place = z.object({ x: z.number().int().min(0).max(999), kind: z.enum(["road", "field"]) });
const options = {
  model: provider(model),
  prompt: "Go.",
  toolChoice: "required",
  providerOptions: { local: { thinking_token_budget: 16 } },
  maxRetries: 0,
  stopWhen: stepCountIs(5),
  tools: {
    locate: tool({
      description: "Where something is.",
      inputSchema: z.object({ name: z.string().max(12), near: place.nullable() }),
      execute: (given) => calls.push(given) && "here",
    }),
    move: tool({
      description: "Go there.",
      inputSchema: z.object({ places: z.array(place).max(3), slowly: z.boolean() }),
      execute: (given) => calls.push(given) && "done",
    }),
  },
};

const told = (steps) => steps.map((step) => [step.finishReason, step.toolResults.length]);
const whole = told((await generateText(options)).steps);
const streamed = streamText({ ...options, onError: ({ error }) => { throw error; } });
await streamed.consumeStream();
console.log(JSON.stringify({ whole, streamed: told(await streamed.steps), calls: calls.length }));
