"""The Python SDK as a host: starts the server that is named by the arguments, uses it, prints what came of it."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client, types


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///work/one", name="one")])


async def sample(context, params):
    text = types.TextContent(type="text", text="In short.")
    return types.CreateMessageResult(role="assistant", model="a-model", content=text)


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"remove": True})


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    steps = []

    async def progress(done, total, message):
        steps.append(message)

    callbacks = {"list_roots_callback": roots, "sampling_callback": sample, "elicitation_callback": elicit}
    async with stdio_client(server, errlog=open(os.devnull, "w")) as (read, write):
        async with ClientSession(read, write, **callbacks) as session:
            await session.initialize()

            async def text(name, arguments):
                return (await session.call_tool(name, arguments)).content[0].text

            out = {
                "server": session.server_info.name,
                "tools": [tool.name for tool in (await session.list_tools()).tools],
                "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
                "resources": [str(resource.uri) for resource in (await session.list_resources()).resources],
                "templates": [
                    template.uri_template for template in (await session.list_resource_templates()).resource_templates
                ],
            }
            out["appended"] = json.loads(await text("notes__append_to_note", {"id": 1, "text": "More."}))["text"]
            out["read"] = (await session.read_resource("notes+note:///1")).contents[0].text
            out["prompt"] = len((await session.get_prompt("notes__review_notes", {"tag": "hello"})).messages)
            reference = types.PromptReference(type="ref/prompt", name="clock__find_meeting")
            completed = await session.complete(reference, {"name": "here", "value": "na"})
            out["completed"] = completed.completion.values
            out["sampled"] = await text("notes__sum_up_note", {"id": 1})
            out["roots"] = await text("notes__note_folders", {})
            out["elicited"] = await text("notes__remove_note", {"id": 1})
            await session.call_tool("clock__countdown", {"seconds": 2}, progress_callback=progress)
            out["progress"] = steps
            try:
                await session.call_tool("nobody__home", {})
            except MCPError as error:
                out["error"] = error.error.code
    print(json.dumps(out))


asyncio.run(main())
