// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestSessionOfSocket runs a command without an environment below a process named sshd-session. That process has the socket of a client's connection,
// and the socket of a connection that it forwards. The session must be found by the first socket. Below a process with another name no session may be
// found.
func TestSessionOfSocket(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("no loopback address: %v", err)
		}
		defer l.Close()
		client, err := net.Dial("tcp", l.Addr().String()) // the end of a connection that the process forwards
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		cmd := exec.Command("env", "-i", "sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		name := func(text string) {
			if err := os.WriteFile("/proc/self/comm", []byte(text), 0); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.ReadFile("/proc/self/comm")
		if err != nil {
			t.Fatal(err)
		}
		defer name(strings.TrimSpace(string(before)))
		name("sshd-session")
		list, _ := SessionsOf(cmd.Process.Pid)
		if len(list) != 1 || list[0].Client.String() != client.LocalAddr().String() || list[0].Server.String() != l.Addr().String() {
			t.Errorf("sessions %v, want %v to %v", list, client.LocalAddr(), l.Addr())
		}
		name("server")
		if list, _ := SessionsOf(cmd.Process.Pid); len(list) > 0 && list[0].Client.String() == client.LocalAddr().String() {
			t.Errorf("below another server: %v", list)
		}
		client.Close()
		server.Close()
		l.Close()
	}
}
