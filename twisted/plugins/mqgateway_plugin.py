"""What `twistd` finds: the service `mqgateway` and the reactor `uvloop`."""

from twisted.application.reactors import Reactor
from twisted.application.service import ServiceMaker

mqgateway = ServiceMaker(
    "mqgateway", "gateway.tap", "A durable gateway for five message-queue protocols.", "mqgateway"
)
uvloop = Reactor("uvloop", "gateway.uvloop_reactor", "asyncio on uvloop, for speed")
