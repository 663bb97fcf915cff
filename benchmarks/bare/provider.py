"""A provider that does nothing, for the floor of ``up_overhead``: it echoes inputs and touches no cloud."""

from __future__ import annotations

import sys

from pulumi.provider.experimental import provider
from pulumi.provider.experimental.server import main


class Nothing(provider.Provider):
    """Create, update and delete succeed at once."""

    async def check(self, request: provider.CheckRequest) -> provider.CheckResponse:
        """Inputs as they are."""
        return provider.CheckResponse(inputs=request.new_inputs)

    async def diff(self, request: provider.DiffRequest) -> provider.DiffResponse:
        """Nothing ever changes."""
        del request
        return provider.DiffResponse(changes=False)

    async def create(self, request: provider.CreateRequest) -> provider.CreateResponse:
        """A resource made of its inputs."""
        return provider.CreateResponse(resource_id="nothing", properties=request.properties)

    async def read(self, request: provider.ReadRequest) -> provider.ReadResponse:
        """The state as it was."""
        return provider.ReadResponse(
            resource_id=request.resource_id, properties=request.properties, inputs=request.inputs
        )

    async def delete(self, request: provider.DeleteRequest) -> None:
        """Gone."""
        del request


if __name__ == "__main__":
    main(sys.argv[1:], "0.1.0", Nothing())
