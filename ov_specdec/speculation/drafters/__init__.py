"""Where candidates come from. One loop serves every drafter; a new drafter is a new file here."""

from ov_specdec.speculation.drafters.base import Declined, Drafter, Proposal, Steps
from ov_specdec.speculation.drafters.cascade import Cascade
from ov_specdec.speculation.drafters.model import ModelDrafter
from ov_specdec.speculation.drafters.prompt_lookup import PromptLookup
from ov_specdec.speculation.drafters.suffix import SuffixDrafter

__all__ = [
    "Cascade",
    "Declined",
    "Drafter",
    "ModelDrafter",
    "PromptLookup",
    "Proposal",
    "Steps",
    "SuffixDrafter",
]
