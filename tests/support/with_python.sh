#!/bin/sh
# Runs a script with the Python that MEGATRON_TEST_PYTHON names, or else python3. Ends with 77, "skipped", without one;
# scripts do the same where the packages that they compare with are missing.
python=${MEGATRON_TEST_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: there is no $python (MEGATRON_TEST_PYTHON)"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$@"
