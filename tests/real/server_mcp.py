"""The Python SDK as a server, in both eras."""

from mcp.server.mcpserver import Context, MCPServer

from peer import offer

server = MCPServer("peer", instructions="Say hello first.")
offer(server, Context)
server.run("stdio")
