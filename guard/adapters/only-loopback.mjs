// Answers requests to other machines with an empty object: AgentKit reports its use to its vendor.
const leaving = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const { hostname } = new URL(input instanceof Request ? input.url : input);
  return hostname === "127.0.0.1" ? leaving(input, init) : Response.json({});
};
