"""Where draft tokens come from. One loop serves every drafter; a new drafter is a new file here."""

from ov_specdec.drafters.base import Declined, Drafter, Proposal, Steps
from ov_specdec.drafters.cascade import Cascade
from ov_specdec.drafters.factory import Beginning, DrafterKind
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.suffix import SuffixDrafter

__all__ = [
    "Beginning",
    "Cascade",
    "Declined",
    "Drafter",
    "DrafterKind",
    "ModelDrafter",
    "PromptLookup",
    "Proposal",
    "Steps",
    "SuffixDrafter",
]
