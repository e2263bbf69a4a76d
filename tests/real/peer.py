"""What both Python servers offer: a tool of each kind, a resource, a template, a prompt."""

from pydantic import BaseModel


class Sum(BaseModel):
    total: float
    terms: list[float]


class Name(BaseModel):
    name: str


def offer(server, context):
    """Gives it to a server; `context` is the type by which its SDK knows that a tool wants to ask."""

    @server.tool()
    def add(terms: list[float]) -> Sum:
        """Adds numbers."""
        return Sum(total=sum(terms), terms=terms)

    @server.tool()
    def echo(text: str) -> str:
        """Says it again."""
        return text

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("no luck")

    @server.tool()
    async def greet(ctx: context) -> str:
        """Asks for a name."""
        answer = await ctx.elicit("Your name?", Name)
        return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else answer.action

    @server.resource("memo://first")
    def first() -> str:
        return "The first memo."

    @server.resource("memo://of/{name}")
    def of(name: str) -> str:
        return f"A memo of {name}."

    @server.prompt()
    def review(subject: str) -> str:
        return f"Review {subject}."
