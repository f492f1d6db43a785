"use strict";
// The page of the server: sends a text, and shows the answer with the origin of its tokens.

const LABELS = {
  messages: "Message", text: "Text to continue", source: "Text to summarize or translate",
};
const EXAMPLES = {
  code: ["class Stack:", "def quicksort(xs):\n"],
  source: ["Paris is the capital of France. It lies on the Seine, and has two million inhabitants."],
  messages: ["Why is the sky blue?", "Write a Python function that reverses a string."],
  text: ["The three most important inventions of the last century are"],
};
const LOADING_AGAIN = 1000; // milliseconds

const $ = id => document.getElementById(id);
const messages = [];
let model = null;
let running = null;

function headers() {
  const key = $("key").value;
  const json = {"content-type": "application/json"};
  return key ? {...json, authorization: `Bearer ${key}`} : json;
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  const error = new Error(body?.error?.message ?? `HTTP ${response.status}`);
  return Object.assign(error, {status: response.status});
}

/** Ask which model there is, until it is loaded, and make the page fit it. */
async function find_model() {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    if (!response.ok) throw await failure(response);
    model = (await response.json()).data[0];
  } catch (error) {
    $("about").textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
    if (error.status === 503) setTimeout(find_model, LOADING_AGAIN);
    if (error.status === 401) ask_for_key();
    return;
  }
  $("model").textContent = document.title = model.id;
  $("about").textContent = model.description;
  $("key-form").hidden = true;
  if (model.takes === "audio") {
    $("form").hidden = $("legend").hidden = true;
    return;
  }
  $("text-label").textContent = LABELS[model.takes];
  const kind = model.takes === "messages" ? "chat" : "completion";
  document.body.classList.add(kind, ...(model.writes_code ? ["code"] : []));
  $("send").disabled = false;
  offer_examples(EXAMPLES[model.takes === "text" && model.writes_code ? "code" : model.takes]);
}

function ask_for_key() {
  if (!$("key").value) $("about").textContent = "This server requires an API key.";
  $("key-form").hidden = false;
  $("key").focus();
}

function offer_examples(texts) {
  $("examples").replaceChildren("Try", ...texts.map(text => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "example";
    button.textContent = text;
    button.title = "Send this example";
    button.addEventListener("click", () => {
      if (running) return;
      $("text").value = text;
      $("form").requestSubmit();
    });
    return button;
  }));
  $("examples").hidden = false;
}

function add(parent, kind, text) {
  const element = document.createElement("div");
  element.className = kind;
  element.textContent = text;
  parent.append(element);
  return element;
}

function add_piece(element, text, origin) {
  const piece = document.createElement("span");
  piece.className = origin;
  piece.textContent = text;
  element.append(piece);
}

/** Follow the answer while its reader is at the end of the page. */
function follow(change) {
  const page = document.documentElement;
  const at_end = page.scrollTop + page.clientHeight > page.scrollHeight - 40;
  change();
  if (at_end) page.scrollTop = page.scrollHeight;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":")) continue;
      const data = line.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function answer(text, element) {
  const chats = model.takes === "messages";
  const request = {
    model: model.id, stream: true, stream_options: {include_usage: true}, return_origins: true,
    temperature: Number($("temperature").value), max_tokens: Number($("max-tokens").value),
    ...(chats ? {messages: [...messages, {role: "user", content: text}]} : {prompt: text}),
  };
  const began = performance.now();
  const response = await fetch(chats ? "v1/chat/completions" : "v1/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(request), signal: running.signal,
  });
  if (!response.ok) throw await failure(response);
  for await (const event of events(response.body)) {
    if (event.error) throw new Error(event.error.message);
    for (const choice of event.choices) {
      const piece = choice.delta?.content ?? choice.text ?? "";
      if (piece) follow(() => add_piece(element, piece, choice.origin ?? "plain"));
    }
    if (event.usage) follow(() => show_usage(event, (performance.now() - began) / 1000));
  }
}

function show_usage({usage, metrics}, seconds) {
  const drafts = metrics?.speculative_decoding;
  const accepted = drafts
    ? `, ${drafts.num_accepted_draft_tokens} of ${drafts.num_draft_tokens} draft tokens accepted` : "";
  const tokens = usage.completion_tokens;
  $("status").textContent =
    `${tokens} tokens in ${seconds.toFixed(2)} s (${(tokens / seconds).toFixed(0)} tokens/s)${accepted}`;
}

function set_running(controller) {
  running = controller;
  $("send").disabled = running !== null;
  $("stop").disabled = running === null;
  $("log").setAttribute("aria-busy", running !== null); // read out as a whole, not by the token
}

async function send(event) {
  event.preventDefault();
  const text = $("text").value;
  if (!text || running || model === null) return;
  set_running(new AbortController());
  $("status").textContent = "";
  $("text").value = "";
  const turn = add($("log"), "turn", "");
  add(turn, "message user", text);
  const shown = add(turn, "message assistant", "");
  document.documentElement.scrollTop = document.documentElement.scrollHeight;
  const keep = () => messages.push(
    {role: "user", content: text}, {role: "assistant", content: shown.textContent});
  try {
    await answer(text, shown);
    keep();
  } catch (error) {
    // A partial answer stays; a message without an answer returns to the input.
    if (shown.textContent) keep();
    else {
      turn.remove();
      $("text").value ||= text;
    }
    if (error.name === "AbortError") $("status").textContent = "Stopped.";
    else follow(() => add($("log"), "error", error.message));
  } finally {
    set_running(null);
    $("text").focus();
  }
}

$("form").addEventListener("submit", send);
$("key-form").addEventListener("submit", event => find_model(event.preventDefault()));
$("stop").addEventListener("click", () => running?.abort());
$("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) $("form").requestSubmit(event.preventDefault());
});
find_model();
