package lab

import (
	"context"
	"encoding/json"
	"os"
	"runtime/debug"
)

// connectName is what this program is called as a process of clients.
const connectName = "floodwall-clients"

// connectMain is all that the process of clients does.
func connectMain() error { return clientsMain((*ConnectOptions).run) }

// clientsMain reads options, and writes what comes of running them.
func clientsMain[Options, Summary any](run func(*Options) (Summary, error)) error {
	debug.SetGCPercent(-1) // a pause would be a client's
	o := new(Options)
	if err := readInput(o); err != nil {
		return err
	}
	s, err := run(o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// start runs the clients' process to its end, and reads what they got.
func (o *ConnectOptions) start(ctx context.Context, s *ConnectSummary) error {
	return o.Host.clients(ctx, connectName, o.CPU, o.Urgent, o, s)
}

// clients runs a process of clients with options to its end, and reads its summary.
func (h *Host) clients(ctx context.Context, name string, cpu int, urgent bool, options, summary any) error {
	out, err := h.play(ctx, role{name: name, cpu: cpu, priority: clientPriority(urgent), input: options})
	if err != nil {
		return err
	}
	return json.Unmarshal(out, summary)
}
