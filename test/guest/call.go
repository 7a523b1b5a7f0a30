// This file is the protocol by which a test asks the agent in a machine in QEMU: a JSON value a line, in both directions.

package guest

// Port is the device file of the channel in the machine: the first port of the first virtio serial device.
const Port = "/dev/vport0p1"

// Request asks for one thing. The agent answers requests in their order.
type Request struct {
	ID       int      `json:"id"`
	Run      []string `json:"run,omitempty"`      // a command and its arguments
	Detached bool     `json:"detached,omitempty"` // the answer does not wait for the end of the command
	Stdin    string   `json:"stdin,omitempty"`
	Seconds  int      `json:"seconds,omitempty"`  // after which the command is killed
	Listen   []string `json:"listen,omitempty"`   // ports to receive at: "udp/53", "tcp/80"
	Received bool     `json:"received,omitempty"` // what was received so far
}

// Response answers the request of the same ID. One with the ID 0 and Boot is what the agent says first.
type Response struct {
	ID       int            `json:"id"`
	Boot     string         `json:"boot,omitempty"` // the kernel's ID of this boot
	Out      string         `json:"out,omitempty"`  // what the command printed, to standard error too
	Code     int            `json:"code,omitempty"` // exit code; -1 when a signal ended it
	Error    string         `json:"error,omitempty"`
	Received map[string]int `json:"received,omitempty"` // how often, by port and text: "udp/53 hello"
}
