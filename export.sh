#!/bin/sh
# Export a main and a draft model to OpenVINO IR in models/.
#
#   ./export.sh                                           Llama-2-7b-chat and TinyLlama, fp16
#   ./export.sh --main NAME --draft NAME --weight-format int8
#   ./export.sh --main NAME --weight-format int4 --group-size 64 --ratio 0.8 --sym
#
# NAME is a model on the Hugging Face Hub or a local checkpoint. All options: ./export.sh --help
set -eu
main=meta-llama/Llama-2-7b-chat-hf
draft=TinyLlama/TinyLlama-1.1B-Chat-v1.0
models=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)/models

if ! command -v ov-specdec >/dev/null; then
    echo "error: ov-specdec is not installed: pip install '.[export]' in $(dirname -- "$models")" >&2
    exit 2
fi
named=
for argument; do
    case $argument in
    --main* | --draft* | -h | --help) named=yes ;;
    esac
done
[ "$named" ] || set -- --main "$main" --draft "$draft" "$@"
exec ov-specdec export --output "$models" "$@"
