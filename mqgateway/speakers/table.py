"""The speakers by the names of their protocols."""

from __future__ import annotations

from mqgateway.speakers.awcs import AwcsSpeaker
from mqgateway.speakers.base import Speaker
from mqgateway.speakers.mqserver import MqServerSpeaker
from mqgateway.speakers.qlite import QliteSpeaker
from mqgateway.speakers.rq import RqSpeaker
from mqgateway.speakers.sk2mq import Sk2mqSpeaker

SPEAKERS: dict[str, type[Speaker]] = {
    speaker.protocol: speaker
    for speaker in (QliteSpeaker, RqSpeaker, MqServerSpeaker, Sk2mqSpeaker, AwcsSpeaker)
}
