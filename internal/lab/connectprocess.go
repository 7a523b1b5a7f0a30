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
func connectMain() error {
	debug.SetGCPercent(-1) // a pause would be a client's
	var o ConnectOptions
	if err := readInput(&o); err != nil {
		return err
	}
	s, err := o.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// start runs the clients' process to its end, and reads what they got.
func (o *ConnectOptions) start(ctx context.Context, s *ConnectSummary) error {
	out, err := o.Host.play(ctx, role{name: connectName, cpu: o.CPU, priority: clientPriority(o.Urgent), input: o})
	if err != nil {
		return err
	}
	return json.Unmarshal(out, s)
}
