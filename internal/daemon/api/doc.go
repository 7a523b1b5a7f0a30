// SPDX-License-Identifier: Apache-2.0

// Package api is the daemon's API: HTTP and JSON below /v1/. In: requests from the sockets of listen.go, each with the user that sends it. Out: the
// answers of package operate, which the commands also print, and changes, each with a line in the audit log.
//
// Read routes.go first: it is the table of all routes. route.go defines a route, server.go finds the route of a request, call.go reads and answers a
// request, access.go says who may use a route, errors.go maps errors to HTTP status codes. The other files answer the routes. document.go makes the
// OpenAPI document from the table.
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
// If the method needs more than the host, add a field to Parts, which `floodwall daemon` fills in (cmd/floodwall/daemon.go). The returned value is
// written as JSON. statusOf in errors.go gives an error its HTTP status; other errors get 500. The function `change` makes a route that only the
// control socket has, and that the audit log records. The function `stream` makes a route that writes until the client disconnects. Then run
// `make generate`, which updates docs/openapi.json. TestAuthorisation tries each route of the table from each origin.
package api
