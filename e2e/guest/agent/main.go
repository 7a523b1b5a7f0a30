// SPDX-License-Identifier: Apache-2.0

// Command agent runs in a virtual machine and executes the requests of a test outside of the machine. It runs commands, and receives packets at ports
// as an application does. Its arguments are the ports at which it receives from its start.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/floodwall/floodwall/e2e/guest"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func serve(ports []string) error {
	sockets := &sockets{received: map[string]int{}}
	if err := sockets.listen(ports); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	// The previous boot may have left an incomplete line.
	if _, err := port.WriteString("\n"); err != nil {
		return err
	}
	out := json.NewEncoder(port)
	if err := out.Encode(guest.Response{Boot: strings.TrimSpace(string(boot))}); err != nil {
		return err
	}
	lines := bufio.NewReader(port)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("channel: %w", err)
		}
		var request guest.Request
		if json.Unmarshal(line, &request) != nil {
			continue // the rest of a request to the previous boot
		}
		if err := out.Encode(sockets.answer(request)); err != nil {
			return err
		}
	}
}

// openPort waits until the channel to the test exists, and opens it. The agent may start before the kernel has found the channel.
func openPort() (*os.File, error) {
	for {
		port, err := os.OpenFile(guest.Port, os.O_RDWR, 0)
		if !errors.Is(err, os.ErrNotExist) {
			return port, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// answer executes a request and returns the response.
func (s *sockets) answer(request guest.Request) guest.Response {
	response := guest.Response{ID: request.ID}
	switch {
	case request.Run != nil:
		run(request, &response)
	case request.Listen != nil:
		if err := s.listen(request.Listen); err != nil {
			response.Error = err.Error()
		}
	case request.Received:
		response.Received = s.counts()
	}
	return response
}
