// The second generation of the TypeScript SDK as a host, in the era that ERA says: starts the server that is named by
// the arguments, uses it, prints what came of it.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The SDK lies where install.sh has put it, not beside this file.
const require = createRequire(process.env.REAL_PEERS + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");

const modern = process.env.ERA === "modern";
const client = new Client(
  { name: "typescript-2", version: "1" },
  {
    capabilities: { roots: {}, sampling: {}, elicitation: { form: {} } },
    versionNegotiation: { mode: modern ? { pin: "2026-07-28" } : "legacy" },
  },
);
client.setRequestHandler("roots/list", () => ({ roots: [{ uri: "file:///work/one", name: "one" }] }));
client.setRequestHandler("sampling/createMessage", () => ({
  role: "assistant",
  model: "a-model",
  content: { type: "text", text: "In short." },
}));
client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { remove: true } }));

const [command, ...args] = process.argv.slice(2);
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env }, stderr: "ignore" }));
const call = async (name, args, options) => client.callTool({ name, arguments: args }, options);
const out = {
  server: client.getServerVersion().name,
  protocol: client.getNegotiatedProtocolVersion(),
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  resources: (await client.listResources()).resources.map((resource) => resource.uri),
  templates: (await client.listResourceTemplates()).resourceTemplates.map((template) => template.uriTemplate),
};
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
const steps = [];
await call("clock__countdown", { seconds: 2 }, { onprogress: (progress) => steps.push(progress.message) });
out.progress = steps;
out.error = await call("nobody__home", {}).catch((error) => error.code);
await client.close();
console.log(JSON.stringify(out));
