// Package api is the daemon's API: HTTP and JSON below /v1/. In: requests, from the sockets of listen.go, with who sends them. Out:
// answers of package operate, which the commands print too; and changes, each with a line for the audit.
//
// Read routes.go first, the table of all that can be asked. route.go says what a route is, server.go finds the route of a
// request, call.go reads and answers one, access.go says who may ask what, errors.go which status an error has. The other files
// answer. document.go makes the OpenAPI document from the table.
//
//	server := api.New(api.Parts{Host: host, Events: api.NewEvents(), Audit: audit})
//	err := api.Serve(ctx, dir, server, host.Instance.DaemonSettings)
//
// # Adding a route
//
// Add a line to the table in routes.go, and the method of *Call that answers:
//
//	read("/feeds", "the lists that are fetched, and how old they are", (*Call).feeds),
//
//	func (c *Call) feeds(ctx context.Context) (FeedList, error) {
//		all, err := c.parts.Host.Feeds(ctx)
//		return FeedList{all}, err
//	}
//
// What the method needs beside the host is a field of Parts, which `floodwall daemon` fills in (cmd/floodwall/daemon.go). The
// value is written as JSON. An error is written with the status that statusOf in errors.go has for it, 500 when it has none. `change`
// makes a route that only the control socket has, and that the audit names; `stream` one that writes until the client goes.
// `make generate` then brings docs/openapi.json up to date. TestAuthorisation asks each route of the table as everybody.
package api
