// The TypeScript SDK as a host: starts the server that is named by the arguments, uses it, prints what came of it.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The SDK lies where install.sh has put it, not beside this file.
const require = createRequire(process.env.REAL_PEERS + "/");
const load = (name) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + name)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const types = await load("types.js");

const client = new Client(
  { name: "typescript", version: "1" },
  { capabilities: { roots: {}, sampling: {}, elicitation: {} } },
);
const updated = new Promise((resolve) =>
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (note) => resolve(note.params.uri)),
);
client.setRequestHandler(types.ListRootsRequestSchema, () => ({ roots: [{ uri: "file:///work/one", name: "one" }] }));
client.setRequestHandler(types.CreateMessageRequestSchema, () => ({
  role: "assistant",
  model: "a-model",
  content: { type: "text", text: "In short." },
}));
client.setRequestHandler(types.ElicitRequestSchema, () => ({ action: "accept", content: { remove: true } }));

const [command, ...args] = process.argv.slice(2);
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env }, stderr: "ignore" }));
const call = async (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const out = {
  server: client.getServerVersion().name,
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  resources: (await client.listResources()).resources.map((resource) => resource.uri),
  templates: (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate),
};
await client.subscribeResource({ uri: "notes+note:///1" });
out.appended = (await call("notes__append_to_note", { id: 1, text: "More." })).structuredContent.text;
out.updated = await updated;
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
const steps = [];
await call("clock__countdown", { seconds: 2 }, { onprogress: (progress) => steps.push(progress.message) });
out.progress = steps;
out.error = await call("nobody__home", {}).catch((error) => error.code);
await client.close();
console.log(JSON.stringify(out));
