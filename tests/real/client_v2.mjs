// The second generation of the TypeScript SDK as a host, in the era that ERA says: starts the server that is named by
// the arguments, uses it, prints what came of it.
import { answers, lists, load, open, use } from "./session.mjs";

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
client.setRequestHandler("roots/list", answers.roots);
client.setRequestHandler("sampling/createMessage", answers.sampling);
client.setRequestHandler("elicitation/create", answers.elicitation);

await open(client, StdioClientTransport);
const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const protocol = client.getNegotiatedProtocolVersion();
const listed = await lists(client);
console.log(JSON.stringify({ protocol, ...listed, ...(await use(client, call)) }));
await client.close();
