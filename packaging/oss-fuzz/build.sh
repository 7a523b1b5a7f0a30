#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the fuzz targets for OSS-Fuzz, as it calls this script in its image. TestFuzzTargets holds the list against the functions in the
# tree. internal/compile/xdp:FuzzConditions is left out: it loads programs into the kernel, which OSS-Fuzz does not allow. make
# test-nightly runs all of them.
set -euo pipefail
targets=(
	cmd/floodwall-bgp/speaker:FuzzWanted
	internal/bgp/flowspec:FuzzDecode
	internal/daemon/api:FuzzRequest
	internal/daemon/integrations:FuzzAlert
	internal/daemon/integrations:FuzzDecisions
	internal/daemon/sample:FuzzCapture
	internal/daemon/sample:FuzzStream
	internal/daemon/upstream:FuzzCheck
	internal/fleet/policies:FuzzOpen
	internal/fleet/wire:FuzzMessages
	internal/host/facts:FuzzPacketServer
	internal/importer:FuzzImport
	internal/model/packet:FuzzDecode
	internal/model/packet:FuzzParse
	internal/sources/feed:FuzzRead
	internal/sources/geo:FuzzRead
	policy:FuzzParse
)
for target in "${targets[@]}"; do
	package=${target%:*} function=${target#*:}
	compile_native_go_fuzzer_v2 "github.com/floodwall/floodwall/$package" "$function" "${package//\//_}_$function"
done
