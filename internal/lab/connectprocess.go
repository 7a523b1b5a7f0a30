package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"syscall"
)

// connectName is what this program is called as a process of clients.
const connectName = "floodwall-clients"

// Clients have a process of their own. In that of a source, which has a lower priority on the same CPU, their thread may
// spin in Go's runtime until another thread has done its part (runtime/proc.go, casgstatus), and when that is the
// source's, it never gets the CPU to do so. Here all threads have one priority, and take turns.
func init() {
	if len(os.Args) == 0 || os.Args[0] != connectName {
		return
	}
	if err := connectMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// connectMain is all that the process does. With an argument, it first becomes itself again where that says.
func connectMain() error {
	if len(os.Args) > 1 {
		return connectAt(os.Args[1])
	}
	debug.SetGCPercent(-1) // a pause would be a client's
	var o ConnectOptions
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	s, err := o.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// connectAt places the only thread of the process's next life, and so all that this one starts.
func connectAt(place string) error {
	var cpu, priority int
	if _, err := fmt.Sscan(place, &cpu, &priority); err != nil {
		return fmt.Errorf("place %q: %w", place, err)
	}
	if err := Place(cpu, priority); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ())
}

// start runs the clients' process to its end, and reads what they got.
func (o *ConnectOptions) start(ctx context.Context, s *ConnectSummary) error {
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{connectName, fmt.Sprint(o.CPU, clientPriority(o.Urgent))}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(options), &out, &complaint
	// The kernel kills it with the thread that started it, whichever way this process ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := o.Host.Do(cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return json.Unmarshal(out.Bytes(), s)
}
