// Package cost is what a packet costs on this host, by measurement: figures of each stage and of what rules ask, which
// `floodwall-lab bench --calibrate` takes and writes, and the arithmetic that predicts what a placement of rules costs.
// It measures nothing: `floodwall-lab calibrate` does.
//
//	m, err := cost.Read(state, host)
//	p := m.Predict("xdp", stations, mix)
package cost
