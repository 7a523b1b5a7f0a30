// SPDX-License-Identifier: Apache-2.0

// This file has the protocol between a test and the agent in a virtual machine. Both sides send JSON values, one in each line.

package guest

// Port is the device file of the channel in the machine. It is the first port of the first virtio serial device.
const Port = "/dev/vport0p1"

// Request is a request for one action. The agent answers requests in their order.
type Request struct {
	ID       int      `json:"id"`
	Run      []string `json:"run,omitempty"`      // a command and its arguments
	Detached bool     `json:"detached,omitempty"` // the answer does not wait for the end of the command
	Stdin    string   `json:"stdin,omitempty"`
	Seconds  int      `json:"seconds,omitempty"`  // time limit, after which the command is killed
	Listen   []string `json:"listen,omitempty"`   // ports at which the agent receives: "udp/53", "tcp/80"
	Received bool     `json:"received,omitempty"` // return what was received so far
}

// Response answers the request of the same ID. The agent's first message has the ID 0 and Boot.
type Response struct {
	ID       int            `json:"id"`
	Boot     string         `json:"boot,omitempty"` // the kernel's ID of this boot
	Out      string         `json:"out,omitempty"`  // output of the command, with standard error
	Code     int            `json:"code,omitempty"` // exit code; -1 if a signal ended it
	Error    string         `json:"error,omitempty"`
	Received map[string]int `json:"received,omitempty"` // how often, by port and text: "udp/53 hello"
}
