// SPDX-License-Identifier: Apache-2.0

// Package cost holds the measured costs of packets on this host, and predicts the cost of a placement of rules from
// them. A cost model has figures for each stage and for each kind of test in a rule. `floodwall-lab bench --calibrate`
// measures and writes it. This package measures nothing itself.
//
//	m, err := cost.Read(state, this)
//	p := m.Predict("xdp", stations, mix)
package cost
