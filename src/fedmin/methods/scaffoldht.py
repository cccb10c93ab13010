"""ScaffoldHT: SCAFFOLD whose server projects.   [karimireddy2020scaffold], [tong2022federated]

    client i    y <- x;  K times  y <- y - eta (grad f_i(y) - c_i + c)
                c_i+ <- c_i - c + (x - y)/(K eta)
    server      x <- H(x + eta_s mean(y - x));   c <- c + sum over present of p_i (c_i+ - c_i)
    bytes       down 2 tau + d, up 2 d

Fed-HT's local steps with the drift taken out of them: where Fed-HT with K > 1 stops at a point that
depends on K, this one stops where Distributed-IHT does. H is the projection onto the domain.
"""

from fedmin.methods.fedht import check_projection, spread
from fedmin.methods.scaffold import Scaffold, Server


class ScaffoldHT(Scaffold):
    """Drift-corrected local steps, projected at the server onto the problem's domain.

    >>> import fedmin
    >>> fedmin.ScaffoldHT(step=0.1, local_steps=5).local_steps
    5
    """

    handles = frozenset({"rows", "domain"})
    citation = "tong2022federated"
    guarded = False

    def check(self, problem):
        check_projection(self, problem)

    def start(self, problem, roster, key):
        x, c = Scaffold.start(self, problem, roster, key)
        return Server(problem.domain.projected(x), c)

    def client(self, problem, rows, c_i, down, now):
        down = {**down, "model": spread(down["model"])}
        return Scaffold.client(self, problem, rows, c_i, down, now)

    def server(self, problem, server_rows, server, learnt, now):
        moved = Scaffold.server(
            self, problem, server_rows, Server(spread(server.x), server.c), learnt, now
        )
        return Server(problem.domain.projected(moved.x), moved.c)

    def model(self, own):
        return spread(own.x)
