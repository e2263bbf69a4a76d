"""FastMCP as a server, in both eras."""

from fastmcp import Context, FastMCP

from peer import offer

server = FastMCP("peer", instructions="Say hello first.")
offer(server, Context)
server.run(show_banner=False)
