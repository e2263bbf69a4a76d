"""FastMCP's client as a host: starts the server that is named by the arguments, uses it, prints what came of it.

It opens as the newest revision has it where the server can, and falls back to `initialize`.
"""

import asyncio
import json
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError


async def main():
    transport = StdioTransport(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ), keep_alive=False)
    client = Client(transport)
    steps = []

    async def progress(done, total, message):
        steps.append(message)

    async with client:

        async def text(name, arguments):
            return (await client.call_tool(name, arguments)).content[0].text

        out = {
            "protocol": client.protocol_version,
            "server": client.server_info.name,
            "tools": [tool.name for tool in await client.list_tools()],
            "prompts": [prompt.name for prompt in await client.list_prompts()],
            "resources": [str(resource.uri) for resource in await client.list_resources()],
            "templates": [template.uri_template for template in await client.list_resource_templates()],
        }
        out["appended"] = json.loads(await text("notes__append_to_note", {"id": 1, "text": "More."}))["text"]
        out["read"] = (await client.read_resource("notes+note:///1"))[0].text
        out["prompt"] = len((await client.get_prompt("notes__review_notes", {"tag": "hello"})).messages)
        await client.call_tool("clock__countdown", {"seconds": 2}, progress_handler=progress)
        out["progress"] = steps
        try:
            await client.call_tool("nobody__home", {})
        except (ToolError, MCPError) as error:
            out["error"] = str(error)
    print(json.dumps(out))


asyncio.run(main())
