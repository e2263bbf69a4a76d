// What both generations of the TypeScript SDK do as hosts.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The SDK lies where install.sh has put it, not beside this file.
const require = createRequire(process.env.REAL_PEERS + "/");

/** Loads a module of an installed package. */
export const load = (name) => import(pathToFileURL(require.resolve(name)));

/** What the host answers when it is asked. */
export const answers = {
  roots: () => ({ roots: [{ uri: "file:///work/one", name: "one" }] }),
  sampling: () => ({ role: "assistant", model: "a-model", content: { type: "text", text: "In short." } }),
  elicitation: () => ({ action: "accept", content: { remove: true } }),
};

/** Starts the server that this program's arguments name, and opens a session with it. */
export async function open(client, Transport) {
  const [command, ...args] = process.argv.slice(2);
  await client.connect(new Transport({ command, args, env: { ...process.env }, stderr: "ignore" }));
}

/** What the server lists. */
export const lists = async (client) => ({
  server: client.getServerVersion().name,
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  resources: (await client.listResources()).resources.map((resource) => resource.uri),
  templates: (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate),
});

/** Uses one thing of each kind; `call` is how this SDK calls a tool. */
export async function use(client, call) {
  const out = {};
  out.appended = (await call("notes__append_to_note", { id: 1, text: "More." })).structuredContent.text;
  out.read = (await client.readResource({ uri: "notes+note:///1" })).contents[0].text;
  out.prompt = (await client.getPrompt({ name: "notes__review_notes", arguments: { tag: "hello" } })).messages.length;
  out.completed = (
    await client.complete({
      ref: { type: "ref/prompt", name: "clock__find_meeting" },
      argument: { name: "here", value: "na" },
    })
  ).completion.values;
  out.sampled = (await call("notes__sum_up_note", { id: 1 })).content[0].text;
  out.roots = (await call("notes__note_folders", {})).content[0].text;
  out.elicited = (await call("notes__remove_note", { id: 1 })).content[0].text;
  out.progress = [];
  await call("clock__countdown", { seconds: 2 }, { onprogress: ({ message }) => out.progress.push(message) });
  out.error = await call("nobody__home", {}).catch((error) => error.code);
  return out;
}
