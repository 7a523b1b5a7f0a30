// Floodwall is a firewall against floods: it reads a policy and puts it where packets come in.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run is main with the exit status as its result.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once, which what runs survives at every point. There is no stop on the way out:
	// a signal at the very end must not hide the exit status.
	context.AfterFunc(ctx, stop)
	e := &env{
		stdin: os.Stdin, getenv: os.Getenv, commandLine: os.Args,
		ui: ui{stdout: os.Stdout, stderr: os.Stderr},
	}
	return e.ui.exit(newRoot(e).ExecuteContext(ctx))
}
