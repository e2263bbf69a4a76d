// The TypeScript SDK as a host: starts the server that is named by the arguments, uses it, prints what came of it.
import { answers, lists, load, open, use } from "./session.mjs";

const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
const types = await load("@modelcontextprotocol/sdk/types.js");

const client = new Client(
  { name: "typescript", version: "1" },
  { capabilities: { roots: {}, sampling: {}, elicitation: {} } },
);
const updated = new Promise((resolve) =>
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (note) => resolve(note.params.uri)),
);
client.setRequestHandler(types.ListRootsRequestSchema, answers.roots);
client.setRequestHandler(types.CreateMessageRequestSchema, answers.sampling);
client.setRequestHandler(types.ElicitRequestSchema, answers.elicitation);

await open(client, StdioClientTransport);
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const listed = await lists(client);
await client.subscribeResource({ uri: "notes+note:///1" });
const used = await use(client, call);
console.log(JSON.stringify({ ...listed, ...used, updated: await updated }));
await client.close();
