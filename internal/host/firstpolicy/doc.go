// SPDX-License-Identifier: Apache-2.0

// Package firstpolicy writes the first policy of a host. Each port that is served becomes a service, and each line is explained. ReadHost reads the
// state of the host. Host.Policy returns the text of a policy that drops all other packets, and passes the operator's. The package applies nothing.
//
//	h, err := firstpolicy.ReadHost(devices)
//	text := h.Policy("policy.yaml")
package firstpolicy
