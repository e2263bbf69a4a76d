// The second generation of the TypeScript SDK as a server, in both eras: a tool of each kind, a resource, a template, a
// prompt. The first argument is the folder where install.sh has put the packages.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.argv[2] + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { McpServer, ResourceTemplate, acceptedContent, inputRequired } = await load("@modelcontextprotocol/server");
const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
const { z } = await load("zod");

const text = (text) => ({ content: [{ type: "text", text }] });

serveStdio(() => {
  const server = new McpServer({ name: "peer", version: "1" }, { instructions: "Say hello first." });
  server.registerTool(
    "add",
    {
      description: "Adds numbers.",
      inputSchema: z.object({ terms: z.array(z.number()) }),
      outputSchema: z.object({ total: z.number(), terms: z.array(z.number()) }),
    },
    async ({ terms }) => {
      const sum = { total: terms.reduce((a, b) => a + b, 0), terms };
      return { ...text(JSON.stringify(sum)), structuredContent: sum };
    },
  );
  server.registerTool("echo", { description: "Says it again.", inputSchema: z.object({ text: z.string() }) }, async (args) =>
    text(args.text),
  );
  server.registerTool("fail", { description: "Fails." }, async () => {
    throw new Error("no luck");
  });
  server.registerTool("greet", { description: "Asks for a name." }, async (ctx) => {
    const answer = acceptedContent(ctx.mcpReq.inputResponses, "name", z.object({ name: z.string() }));
    if (answer) return text(`accept: ${answer.name}`);
    return inputRequired({
      inputRequests: {
        name: inputRequired.elicit({
          message: "Your name?",
          requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
        }),
      },
    });
  });
  server.registerResource("first", "memo://first", {}, async (uri) => ({
    contents: [{ uri: uri.href, text: "The first memo." }],
  }));
  server.registerResource("of", new ResourceTemplate("memo://of/{name}", { list: undefined }), {}, async (uri, { name }) => ({
    contents: [{ uri: uri.href, text: `A memo of ${name}.` }],
  }));
  server.registerPrompt("review", { argsSchema: z.object({ subject: z.string() }) }, ({ subject }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Review ${subject}.` } }],
  }));
  return server;
});
