"""Logits for chosen rows only: the last layer is dear, and most rows of a prompt are not needed."""

import openvino as ov
from openvino import opset13 as ops

ROWS = "row_indices"
"""Input that names the rows, [num_rows]: places in the pass, counted from 0."""

PASSED = ("Convert", "Add", "Subtract", "Multiply", "Divide", "Tanh")
"""What may stand between the last matrix product and the logits: bias, scaling, capping."""


def select_rows(model: ov.Model, axis: int) -> bool:
    """Have a decoder compute logits only for the rows that its new input `ROWS` names.

    axis: of the tokens in the last hidden state: 1 in an exported IR, 0 in a paged one. The model
    is changed in place. Returns False, and leaves it as it is, where its last layer is not a matrix
    product of the hidden state, so that all rows have to be computed.
    """
    product = _last_product(model)
    if product is None:
        return False
    rows = ops.parameter([-1], ov.Type.i64, name=ROWS)
    rows.output(0).set_names({ROWS})
    gathered = ops.gather(product.input_value(0), rows, ops.constant(axis, ov.Type.i64))
    product.input(0).replace_source_output(gathered.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    return True


def _last_product(model: ov.Model) -> ov.Node | None:
    """The matrix product that the logits come from."""
    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() in PASSED:
        node = node.input_value(0).get_node()
    return node if node.get_type_name() == "MatMul" else None
