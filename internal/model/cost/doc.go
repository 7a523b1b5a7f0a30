// Package cost is what a packet costs on this host, by measurement: figures of each stage and of what rules ask, which
// `floodwall-lab bench --calibrate` takes and writes, and the arithmetic that predicts what a placement of rules costs.
// It measures nothing itself.
//
//	m, err := cost.Read(state, this)
//	p := m.Predict("xdp", stations, mix)
package cost
