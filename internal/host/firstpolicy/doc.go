// Package firstpolicy writes the first policy of a host: what serves on it becomes a service, and each line is
// explained. In: what the host says of itself (ReadHost). Out: the text of a policy (Host.Policy) that drops everything
// else, and lets the operator in. It applies nothing.
//
//	h, err := firstpolicy.ReadHost(devices)
//	text := h.Policy("policy.yaml")
package firstpolicy
